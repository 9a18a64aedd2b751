// Bytes with a media type and forms, also for code that looks for them in the global object.
import { Blob, File, FormData } from "../blob.js";
import { define } from "./define.js";

define({ Blob, File, FormData });

export { Blob, File, FormData };
