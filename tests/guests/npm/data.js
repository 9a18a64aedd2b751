// Packages as authors would use them. Each function returns what `cases/data.yaml` expects.
import { pack } from "flowcell-sdk";
import Ajv from "ajv";
import { parse as streamCsv } from "csv-parse";
import { parse as parseCsv } from "csv-parse/sync";
import jmespath from "jmespath";
import jsonata from "jsonata";
import lodash from "lodash";
import { customAlphabet, nanoid } from "nanoid";
import Papa from "papaparse";
import qs from "qs";
import semver from "semver";
import { v4, v5, validate } from "uuid";
import validator from "validator";
import { z } from "zod";

const uses = {
  ajv() {
    const check = new Ajv().compile({ type: "object", required: ["n"], properties: { n: { type: "integer" } } });
    return [check({ n: 1 }), check({ n: "x" }), check.errors[0].message];
  },
  "csv-parse": () => parseCsv('name,n\n"Ada, L.",1\nBob,2\n', { columns: true }),
  async "csv-parse as a stream"() {
    const rows = [];
    const parser = streamCsv({ columns: true });
    ["name,n\nAd", "a,1\nBob,2\n"].forEach((part) => parser.write(part));
    parser.end();
    for await (const row of parser) rows.push(row);
    return rows;
  },
  jmespath: () => jmespath.search({ people: [{ n: "Ada", a: 36 }, { n: "Bob", a: 20 }] }, "people[?a > `30`].n"),
  jsonata: () => jsonata("$sum(items.(price * n))").evaluate({ items: [{ price: 2, n: 3 }, { price: 5, n: 1 }] }),
  lodash: () => [lodash.groupBy([1.2, 1.8, 2.1], Math.floor), lodash.template("Hi <%= name %>")({ name: "Ada" })],
  nanoid: () => [nanoid().length, /^[ab]{5}$/.test(customAlphabet("ab", 5)()), nanoid() !== nanoid()],
  papaparse: () => Papa.parse("a,b\n1,2\n3,4", { header: true, dynamicTyping: true }).data,
  qs: () => [qs.parse("a[b]=1&a[c][]=2"), qs.stringify({ a: { b: 1 }, list: [1, 2] })],
  semver: () => [semver.satisfies("1.4.2", "^1.2"), semver.sort(["2.0.0", "1.10.0", "1.9.0"])],
  uuid: () => [validate(v4()), v4() !== v4(), v5("example.com", v5.DNS)],
  validator: () => [validator.isEmail("ada@example.com"), validator.isIBAN("DE89370400440532013000"), validator.isURL("nope")],
  zod() {
    const schema = z.object({ name: z.string().min(1), age: z.coerce.number().int() });
    return [schema.parse({ name: "Ada", age: "36" }), schema.safeParse({ name: "" }).error.issues.length];
  },
};

export const node = pack({ "npm.use": ({ input }) => uses[input.package]() });
