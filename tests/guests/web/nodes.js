// The pack `web`: runs a check of `checks.js`.
import { pack } from "flowcell-sdk";
import { checks } from "./checks.js";

export const node = pack({ "web.check": ({ input }) => checks[input.name]() });
