// Prints what the checks return in Node.js.
import { checks } from "./checks.js";

// Node.js ends while only a signal with a time limit waits.
const alive = setInterval(() => {}, 1000);
const results = {};
for (const [name, check] of Object.entries(checks)) results[name] = await check();
clearInterval(alive);
console.log(JSON.stringify(results));
