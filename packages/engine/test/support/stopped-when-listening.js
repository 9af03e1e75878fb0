// Preloaded into engine processes by a test: the front gets SIGTERM in the moment in which it has said that it listens.
if (process.argv.includes('--child')) {
  const { send } = process;
  process.send = (message, ...rest) => {
    const result = send.call(process, message, ...rest);
    if (message.type === 'listening') process.kill(process.pid, 'SIGTERM');
    return result;
  };
}
