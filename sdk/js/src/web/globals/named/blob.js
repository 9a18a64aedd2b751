// Bytes with a media type and forms.
import { Blob, File, FormData } from "../../blob.js";
import { define } from "../define.js";

define({ Blob, File, FormData });
