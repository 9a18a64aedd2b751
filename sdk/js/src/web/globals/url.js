// URLs, also for code that looks for them in the global object.
import URL from "core-js-pure/stable/url/index.js";
import URLSearchParams from "core-js-pure/stable/url-search-params/index.js";
import { define } from "./define.js";

define({ URL, URLSearchParams });

export { URL, URLSearchParams };
