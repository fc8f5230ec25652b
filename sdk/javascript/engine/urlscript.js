// What url.js evaluates.

export { default as URL } from "core-js-pure/stable/url/index.js";
export { default as URLSearchParams } from "core-js-pure/stable/url-search-params/index.js";
