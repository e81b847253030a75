/** What a server counts, for Prometheus; names as vLLM has them, with our prefix. */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { EngineStats } from '../../kernels/index.ts';
import type { Usage } from './completions.ts';
import type { ServedModel } from './served-model.ts';

export class ServingMetrics {
  readonly registry = new Registry();
  readonly #requests: Counter<'endpoint' | 'status'>;
  readonly #prompt: Counter;
  readonly #generated: Counter;
  readonly #seconds: Histogram<'endpoint'>;
  readonly #first: Histogram;

  constructor(model: ServedModel) {
    const registers = [this.registry];
    this.#requests = new Counter({
      name: 'sinkflex_requests_total',
      help: 'Requests answered.',
      labelNames: ['endpoint', 'status'],
      registers,
    });
    this.#prompt = new Counter({ name: 'sinkflex_prompt_tokens_total', help: 'Tokens of prompts.', registers });
    this.#generated = new Counter({ name: 'sinkflex_generation_tokens_total', help: 'Tokens drawn.', registers });
    const buckets = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300];
    this.#seconds = new Histogram({
      name: 'sinkflex_e2e_request_latency_seconds',
      help: 'Time from a request to the end of its answer.',
      labelNames: ['endpoint'],
      buckets,
      registers,
    });
    this.#first = new Histogram({
      name: 'sinkflex_time_to_first_token_seconds',
      help: 'Time from a request to the first token of its answer.',
      buckets: [0.001, 0.003, ...buckets],
      registers,
    });
    const counted = (name: string, help: string, value: (s: EngineStats) => number): void => {
      new Counter({
        name: `sinkflex_${name}`,
        help,
        registers,
        collect() {
          this.reset();
          this.inc(value(model.engine.stats()));
        },
      });
    };
    const shown = (name: string, help: string, value: (s: EngineStats) => number): void => {
      new Gauge({
        name: `sinkflex_${name}`,
        help,
        registers,
        collect() {
          this.set(value(model.engine.stats()));
        },
      });
    };
    counted('prefix_cache_queries_total', 'Tokens looked up in the prefix cache.', (s) => s.prefixQueries);
    counted('prefix_cache_hits_total', 'Tokens found in the prefix cache.', (s) => s.prefixHits);
    counted('num_preemptions_total', 'Sequences that lost their pages under way.', (s) => s.preemptions);
    shown('kv_cache_usage_perc', 'Share of the pages that sequences use: 1 is all.', (s) => s.cachePagesUsed / s.cachePages);
    shown('num_requests_running', 'Sequences that generate.', () => model.sequences.running);
    shown('num_requests_waiting', 'Requests that wait for a sequence.', (s) => s.waitingSequences);
  }

  answered(endpoint: string, status: number, seconds: number): void {
    this.#requests.inc({ endpoint, status: String(status) });
    this.#seconds.observe({ endpoint }, seconds);
  }

  firstToken(seconds: number): void {
    this.#first.observe(seconds);
  }

  tokens(usage: Usage): void {
    this.#prompt.inc(usage.prompt_tokens);
    this.#generated.inc(usage.completion_tokens);
  }
}
