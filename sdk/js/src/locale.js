// Functions that take a locale. The engine has no `Intl`, and would ignore what is asked for. These functions work without
// a locale, and fail if they are given one, or options.

// The languages whose letters change case in their own way.
const OWN_CASES = /^(tr|az|lt)\b/i;

function isAsked(locales, options) {
  const isLocale = locales !== undefined && !(Array.isArray(locales) && locales.length === 0);
  return isLocale || (options !== undefined && (options === null || Object.keys(options).length > 0));
}

function replace(prototype, name, isRefused, hint) {
  const own = prototype[name];
  const { [name]: replaced } = {
    [name](...given) {
      if (isRefused(...given)) {
        throw new TypeError(`\`${name}\` with a locale or options needs \`Intl\`, which this engine lacks: ${hint}`);
      }
      return Reflect.apply(own, this, given);
    },
  };
  // The language counts no optional parameters.
  Object.defineProperty(replaced, "length", { value: own.length, configurable: true });
  Object.defineProperty(prototype, name, { value: replaced, writable: true, configurable: true });
}

const format = "call it without them, or format the value with a package";
const TypedArray = Object.getPrototypeOf(Uint8Array);
for (const { prototype } of [Number, BigInt, Array, TypedArray, Date]) replace(prototype, "toLocaleString", isAsked, format);
for (const name of ["toLocaleDateString", "toLocaleTimeString"]) replace(Date.prototype, name, isAsked, format);

const compare = "call it without them, which compares code points";
replace(String.prototype, "localeCompare", (_, locales, options) => isAsked(locales, options), compare);

const isOwnCase = (locales) => [locales].flat().some((locale) => OWN_CASES.test(String(locale)));
for (const name of ["toLocaleLowerCase", "toLocaleUpperCase"]) {
  replace(String.prototype, name, isOwnCase, "only Azerbaijani, Lithuanian and Turkish have cases of their own; others work");
}
