// URLs.
import { URL, URLSearchParams } from "../../url.js";
import { define } from "../define.js";

define({ URL, URLSearchParams });
