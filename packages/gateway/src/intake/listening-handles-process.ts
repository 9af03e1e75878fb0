// Sends a handle back to the process that sent it, so many times, as copies of it: see `listening-handles.ts`.
process.once('disconnect', () => process.exit());
process.once('message', (count: number, handle) => {
  let left = count;
  const sent = (): void => {
    left--;
    if (left === 0) process.disconnect();
  };
  for (let i = 0; i < count; i++) process.send!(i, handle, {}, sent);
});
