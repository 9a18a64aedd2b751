// URLs, from a package.
import URL from "core-js-pure/stable/url/index.js";
import URLSearchParams from "core-js-pure/stable/url-search-params/index.js";

export { URL, URLSearchParams };
