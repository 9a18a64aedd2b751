// Packages as authors would use them. Each function returns what `cases/web.yaml` expects.
import { pack } from "flowcell-sdk";
import axios from "axios";
import ky from "ky";
import * as XLSX from "xlsx";

const uses = {
  async axios() {
    const { data, status } = await axios.post("https://api.example.com/echo", { name: "Ada" }, { params: { page: 2 } });
    const missing = await axios.get("https://api.example.com/missing").catch((error) => error.response.status);
    return { data, status, missing };
  },
  async ky() {
    const answer = await ky.post("https://api.example.com/echo", { json: { name: "Ada" }, searchParams: { page: 2 } }).json();
    const missing = await ky("https://api.example.com/missing", { retry: 0 }).catch((error) => error.response.status);
    return { answer, missing };
  },
  xlsx() {
    const book = XLSX.utils.book_new();
    XLSX.utils.book_append_sheet(book, XLSX.utils.json_to_sheet([{ name: "Ada", n: 1 }]), "People");
    const bytes = XLSX.write(book, { type: "array", bookType: "xlsx" });
    const read = XLSX.read(new Uint8Array(bytes), { type: "array" });
    return XLSX.utils.sheet_to_json(read.Sheets.People);
  },
};

export const node = pack({ "npm.use": ({ input }) => uses[input.package]() });
