// Totals of orders by customer.
function totals(orders) {
  const sums = {};
  for (const order of orders {
    if (order.paid) {
      sums[order.customer] = (sums[order.customer] || 0) + order.amount;
    }
  }
  return sums;
}
