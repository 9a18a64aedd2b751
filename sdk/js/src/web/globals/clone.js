// Copies of values.
import { deserialize, serialize } from "@ungap/structured-clone";

export function structuredClone(value) {
  try {
    return deserialize(serialize(value));
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new DOMException(error.message, "DataCloneError");
  }
}
