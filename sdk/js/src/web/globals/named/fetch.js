// `fetch` and its classes.
import { Request, Response, fetch } from "../../fetch.js";
import { Headers } from "../../headers.js";
import { define } from "../define.js";

define({ Headers, Request, Response, fetch });
