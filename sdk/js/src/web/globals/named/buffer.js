// `Buffer` of Node.js.
import { Buffer } from "@jspm/core/nodelibs/buffer";
import { define } from "../define.js";

define({ Buffer });
