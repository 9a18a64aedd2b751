// `process` of Node.js.
import { process } from "../process.js";
import { define } from "../define.js";

define({ process });
