// The jobs of promises. QuickJS has such a queue, too, but nothing empties it before a call of the host returns.

let jobs = [];
// Promises that were rejected, and that nothing has handled so far.
const rejected = new Set();

export function enqueue(job) {
  jobs.push(job);
}

// Runs all jobs, also those that jobs add.
export function drain() {
  while (jobs.length > 0) {
    const some = jobs;
    jobs = [];
    for (const job of some) job();
  }
}

export function unhandled(promise) {
  rejected.add(promise);
}

export function handled(promise) {
  rejected.delete(promise);
}

export function unhandledRejections() {
  return [...rejected];
}
