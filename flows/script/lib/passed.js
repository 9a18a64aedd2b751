export const run = ({ inputs }) => inputs.grades.filter(({ grade }) => grade !== "F").length;
