export const run = () => new Date().toISOString();
