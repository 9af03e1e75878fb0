// A process that says that it lives whenever it is asked, and ends when it is told to.
process.on('message', ({ type, id }) => {
  if (type === 'ping') process.send({ type: 'pong', id, isEnding: false });
  else process.exit();
});
