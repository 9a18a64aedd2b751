// Random numbers that differ between tasks and repeat when an attempt is repeated. The engine's own seed is fixed when
// a pack is built.

// SplitMix32. The seed is read when the first number is needed.
export function seeded(seed) {
  let state;
  return () => {
    state = ((state ?? folded(seed())) + 0x9e3779b9) | 0;
    let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
  };
}

function folded(seed) {
  let state = 0;
  for (const char of String(seed)) state = (Math.imul(state, 31) + char.codePointAt(0)) | 0;
  return state;
}
