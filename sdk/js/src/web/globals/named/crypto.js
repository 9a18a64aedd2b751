// Random numbers, digests and HMAC.
import { crypto } from "../../crypto.js";
import { define } from "../define.js";

define({ crypto });
