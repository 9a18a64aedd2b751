// Copies of values.
import { deserialize, serialize } from "@ungap/structured-clone";
import { define } from "../define.js";

function structuredClone(value) {
  try {
    return deserialize(serialize(value));
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new DOMException(error.message, "DataCloneError");
  }
}

define({ structuredClone });
