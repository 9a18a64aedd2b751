// `crypto`, also for code that looks for it in the global object.
import { crypto } from "../crypto.js";
import { define } from "./define.js";

define({ crypto });

export { crypto };
