// Packages as authors would use them. Each function returns what `cases/time.yaml` expects.
import { pack } from "flowcell-sdk";
import { addMonths, differenceInDays, format } from "date-fns";
import dayjs from "dayjs";
import utc from "dayjs/plugin/utc.js";
import { Decimal } from "decimal.js";
import { DateTime } from "luxon";
import { evaluate } from "mathjs";

dayjs.extend(utc);

const uses = {
  "date-fns": () => [
    format(addMonths(new Date(2026, 0, 31), 1), "yyyy-MM-dd"),
    differenceInDays(new Date(2026, 2, 1), new Date(2026, 1, 1)),
  ],
  dayjs: () => dayjs.utc("2026-01-31T12:00:00Z").add(1, "month").format("YYYY-MM-DD HH:mm"),
  "decimal.js": () => new Decimal("0.1").plus("0.2").toString(),
  luxon: () => DateTime.fromISO("2026-01-31T12:00:00Z", { zone: "utc" }).plus({ months: 1 }).toISO(),
  mathjs: () => [evaluate("sqrt(3^2 + 4^2)"), evaluate("det([1, 2; 3, 4])"), evaluate("2 inch to cm").toString()],
};

export const node = pack({ "npm.use": ({ input }) => uses[input.package]() });
