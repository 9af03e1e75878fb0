# The gateway and the command line: docker build -t warmpath .
# With the embedded engine and its demo model: docker build -t warmpath-engine --target with-engine .

FROM node:22-bookworm-slim AS build
WORKDIR /src
COPY . .
RUN npm ci --ignore-scripts && npm run build && node scripts/pack.js /packages packages/cli

FROM node:22-bookworm-slim AS install-engine
WORKDIR /app
COPY --from=build /packages /packages
RUN npm install --ignore-scripts --no-audit --no-fund /packages/*.tgz

# The command line loads both only for an engine of its own. `npm install --omit=optional` would leave out koffi's
# binary too, without which it does not start.
FROM install-engine AS install-gateway
RUN rm -rf node_modules/@node-llama-cpp node_modules/zeromq

FROM node:22-bookworm-slim AS with-engine
ENV NODE_ENV=production WARMPATH_DATA_DIR=/var/lib/warmpath WARMPATH_CACHE_DIR=/var/lib/warmpath/cache
RUN install --directory --owner=node --group=node /var/lib/warmpath
WORKDIR /app
COPY --from=install-engine /app /app
USER node
# Collections, and consents to prompts.
VOLUME /var/lib/warmpath
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
  CMD ["node", "--eval", "fetch('http://127.0.0.1:8080/healthz').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "/app/node_modules/warmpath/bin/warmpath.js"]
CMD ["up", "--config", "/etc/warmpath/warmpath.yaml"]

# The last stage is what is built without --target.
FROM node:22-bookworm-slim AS gateway
ENV NODE_ENV=production WARMPATH_DATA_DIR=/var/lib/warmpath
RUN install --directory --owner=node --group=node /var/lib/warmpath
WORKDIR /app
COPY --from=install-gateway /app /app
USER node
# Collections, and consents to prompts.
VOLUME /var/lib/warmpath
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
  CMD ["node", "--eval", "fetch('http://127.0.0.1:8080/healthz').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "/app/node_modules/warmpath/bin/warmpath.js"]
CMD ["serve", "--config", "/etc/warmpath/warmpath.yaml"]
