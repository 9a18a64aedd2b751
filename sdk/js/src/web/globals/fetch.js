// `fetch`, also for code that looks for it in the global object.
import { Request, Response, fetch } from "../fetch.js";
import { Headers } from "../headers.js";
import { define } from "./define.js";

define({ Headers, Request, Response, fetch });

export { Headers, Request, Response, fetch };
