// Counts and sums up orders. It calls no service and needs only its input:
//   flowcell run flows/script/statistics.flow.js -i 'orders=[{"city":"Rome","total":12.5},{"city":"Oslo","total":7.5}]'

export function setup(flow) {
  flow.title("Statistics");
  flow.description("Orders by city, the largest sum first");
  flow.inJson("orders", "Orders");
  flow.inText("city", "Only this city", { optional: true });
  flow.outJson("cities", "Sums by city");
}

export function run(services) {
  const wanted = services.input("city");
  const orders = services.inputs.orders.filter(({ city }) => !wanted || city === wanted);
  const sums = new Map();
  for (const { city, total } of orders) {
    sums.set(city, (sums.get(city) ?? 0) + total);
  }
  const cities = [...sums].map(([city, total]) => ({ city, total }));
  cities.sort((a, b) => b.total - a.total);
  console.log(`${orders.length} orders, ${cities.length} cities`);
  services.outputs("cities", cities);
  return { orders: orders.length };
}
