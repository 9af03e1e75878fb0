// Sums over requests that several configurations have answered, and what they say with which error.

function sum(numbers) {
  return numbers.reduce((total, each) => total + each, 0);
}

/**
 * How many times less the second is than the first, where both were measured on the same requests: the ratio of the
 * sums, and its standard error by the delta method. What makes a request long makes it long for both, so this error is
 * far smaller than that of two means.
 */
export function pairedRatio(first, second) {
  const ratio = sum(first) / sum(second);
  const count = first.length;
  const squares = sum(first.map((value, index) => (value - ratio * second[index]) ** 2));
  return { ratio, error: Math.sqrt((count * squares) / (count - 1)) / sum(second) };
}
