import fc from 'fast-check';

/** Properties run on the same cases every time; FAST_CHECK_SEED runs them on others. */
fc.configureGlobal({ seed: Number(process.env['FAST_CHECK_SEED'] ?? 20_260_601) });
