/** What a port of tau2-bench gets wrong: each hazard that was met is a test. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { tau2 } from '../../actors/environment/index.ts';
import { calculate } from '../../actors/environment/tau2/python/calculate.ts';
import { floatRepr, round2 } from '../../actors/environment/tau2/python/float.ts';
import { dumps, quote } from '../../actors/environment/tau2/python/json.ts';
import { compareStrings, PythonError, repr } from '../../actors/environment/tau2/python/values.ts';
import { exactJson, plainJson, readExact } from '../../actors/exact-json.ts';
import { parseToolCalls } from '../../actors/language/index.ts';
import { absent, dataFolder, NO_FIXES } from './traces.ts';

const skip = absent === undefined ? {} : { skip: `the data of tau2-bench are not there: ${absent} (TAU2_TRACES, TAU2_DATA)` };
const { Session, tau2Data } = tau2;
const session = (domain: tau2.DomainName, ...fixes: tau2.Fix[]) =>
  new Session(tau2Data(dataFolder, domain).domain, { fixes: new Set(fixes) });
const retailHash = 'b25c9cb211f5efca';

t.test('1. keys stay in order, also those that look like numbers', skip, async (t) => {
  const { content } = session('retail').respond({ name: 'get_product_details', arguments: { product_id: '1656367028' } });
  const ids = [...content.matchAll(/"(\d{10})": \{/g)].map((m) => m[1]);
  t.strictSame(ids.slice(0, 3), ['9690244451', '7706410293', '3616838507']);
  t.equal(ids.indexOf('1151293680'), 11, 'not in front');
  const dict = readExact('{"b": 1, "1": 2, "a": {"0": "\\"7\\": x"}}');
  t.equal(dumps(dict), '{"b": 1, "1": 2, "a": {"0": "\\"7\\": x"}}');
});

t.test('2. floats print as Python prints them', async (t) => {
  const cases: [number, string][] = [
    [250, '250.0'],
    [1e-7, '1e-07'],
    [1e16, '1e+16'],
    [123456789012345680, '1.2345678901234568e+17'],
    [1e15, '1000000000000000.0'],
    [0.0001, '0.0001'],
    [0.00001234, '1.234e-05'],
    [-0, '-0.0'],
    [0.1 + 0.2, '0.30000000000000004'],
    [1.5e300, '1.5e+300'],
    [Number.POSITIVE_INFINITY, 'inf'],
  ];
  for (const [x, text] of cases) t.equal(floatRepr(x), text);
  fc.assert(
    fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (x) => Object.is(Number(floatRepr(x)), x)),
    { seed: 2 },
  );
});

t.test('3. ties of cents go to even', async (t) => {
  t.strictSame([0.125, 0.375, 0.625, 0.875, 2.125, -0.125, -0.375].map(round2), [0.12, 0.38, 0.62, 0.88, 2.12, -0.12, -0.38]);
  t.strictSame([2.675, 1.005, 0.045, 1e20].map(round2), [2.67, 1, 0.04, 1e20]);
});

t.test('3. no sign of a zero is lost', async (t) => {
  for (const x of [0, -0, 0.004, -0.004]) t.ok(Object.is(round2(x), x < 0 || Object.is(x, -0) ? -0 : 0), floatRepr(x));
});

t.test('4. JSON is ASCII, with blanks', async (t) => {
  t.equal(quote('é\u007f"\\\n😀'), '"\\u00e9\\u007f\\"\\\\\\n\\ud83d\\ude00"');
  t.equal(dumps({ b: [1n, 2.5, null, true], a: 'x' }), '{"b": [1, 2.5, null, true], "a": "x"}');
  t.equal(dumps({ b: 1n, a: 2n }, true), '{"a": 2, "b": 1}');
});

t.test('5. names of JavaScript are ids like others', skip, async (t) => {
  const s = session('retail');
  for (const id of ['__proto__', 'constructor', 'toString', 'hasOwnProperty']) {
    t.equal(s.respond({ name: 'get_user_details', arguments: { user_id: id } }).content, 'Error: User not found');
    t.equal(s.respond({ name: id, arguments: {} }).content, `Error: Tool '${id}' not found.`);
  }
});

t.test('6. numbers of telecom print as floats, whole or not', skip, async (t) => {
  const s = session('telecom');
  const { content } = s.respond({ name: 'refuel_data', arguments: { customer_id: 'C1001', line_id: 'L1002', gb_amount: 2 } });
  t.match(content, 'Successfully added 2.0 GB of data for line L1002 for $');
});

t.test('6. a tool hears whether a number was written with a point', skip, async (t) => {
  const say = (args: string) => {
    const read = parseToolCalls('hermes', `<tool_call>{"name": "refuel_data", "arguments": ${args}}</tool_call>`).toolCalls[0]!;
    return session('telecom').respond(tau2.tau2Call(read)).content;
  };
  const line = '"customer_id": "C1001", "line_id": "L1002"';
  for (const [written, shown] of [
    ['5', '5 GB of data for line L1002 for $10.00'],
    ['5.0', '5.0 GB of data for line L1002 for $10.00'],
    ['true', 'True GB of data for line L1002 for $2.00'],
    ['1e22', '1e+22 GB of data for line L1002 for $20000000000000000000000.00'],
    ['123456789012345678901', '123456789012345678901 GB of data for line L1002 for $246913578024691367936.00'],
    ['NaN', 'nan GB of data for line L1002 for $nan'],
    ['Infinity', 'inf GB of data for line L1002 for $inf'],
    ['-0.0', 'Error: Refuel amount must be positive'],
  ] as const) {
    t.match(say(`{${line}, "gb_amount": ${written}}`), shown);
  }
  t.match(say(`{${line}, "gb_amount": 1, "gb_amount": 2.0}`), '2.0 GB', 'the last of one name counts');
  t.match(say(`{${line}, "gb_amount": ${'9'.repeat(400)}}`), 'int too large to convert to float');
  const id = (written: string) => session('telecom').respond(tau2.tau2Call(read(`{"id": ${written}}`))).content;
  const read = (text: string) => ({ name: 'get_customer_by_id', arguments: {}, argumentsText: text.replace('"id"', '"customer_id"') });
  t.equal(id('{"2": 1.0, "1": [-0.0, 10000000000000000]}'), "Error: Customer with ID {'2': 1.0, '1': [-0.0, 10000000000000000]} not found");
});

t.test('JSON is read as Python reads it', async (t) => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.constantFrom(0, 1), (value, blanks) => {
      const text = JSON.stringify(value, undefined, blanks);
      t.strictSame(plainJson(readExact(text)), JSON.parse(text));
      t.strictSame(readExact(dumps(readExact(text))), readExact(text));
    }),
    { seed: 8, numRuns: 300 },
  );
  const cases: [string, string][] = [
    ['-0', '0'],
    ['[5, 5.0, 1e2, 1E400, -1e400]', '[5, 5.0, 100.0, Infinity, -Infinity]'],
    ['{"a": NaN, "10": -Infinity, "1": 18446744073709551617}', '{"a": NaN, "10": -Infinity, "1": 18446744073709551617}'],
    ['{"a": 1, "b": 2, "a": 3.0, "__proto__": 4}', '{"a": 3.0, "b": 2, "__proto__": 4}'],
    ['"\\ud800 \\u00e9\\/\u007f"', '"\\ud800 \\u00e9/\\u007f"'],
  ];
  for (const [text, printed] of cases) t.equal(dumps(readExact(text)), printed, text);
  const bad = [
    '',
    '01',
    '1.',
    '.5',
    '+1',
    '[1,]',
    '{"a": 1,}',
    "{'a': 1}",
    '{a: 1}',
    '"a',
    '"\n"',
    '"\\x"',
    'nan',
    '1 2',
    '[',
    '\u00a01',
    '9'.repeat(4301),
  ];
  for (const text of [...bad, '['.repeat(5000)]) t.throws(() => readExact(text), SyntaxError, text.slice(0, 20));
});

t.test('7. worlds share nothing that one writes', skip, async (t) => {
  const [a, b] = [session('telecom'), session('telecom')];
  a.run({ env_type: 'user', func_name: 'break_vpn', arguments: {} });
  b.respond({ name: 'connect_vpn', arguments: {}, requestor: 'user' });
  t.match(b.respond({ name: 'check_vpn_status', arguments: {}, requestor: 'user' }).content, "<PerformanceLevel.EXCELLENT: 'excellent'>");
  // 8.
  t.equal(
    a.respond({ name: 'check_vpn_status', arguments: {}, requestor: 'user' }).content,
    "VPN is ON and connected. Details: {'server_address': '192.168.1.1', 'protocol': 'OpenVPN', 'server_performance': <PerformanceLevel.POOR: 'poor'>}",
  );
  t.match(a.respond({ name: 'check_status_bar', arguments: {}, requestor: 'user' }).content, '📶');
  const hash = () => tau2Data(dataFolder, 'retail').domain.hashes(session('retail').world).agent;
  t.equal(hash().slice(0, 16), retailHash);
  const writer = session('retail');
  writer.respond({ name: 'modify_user_address', arguments: { ...address, user_id: 'yusuf_rossi_9620' } });
  t.not(writer.domain.hashes(writer.world).agent.slice(0, 16), retailHash);
  t.equal(hash().slice(0, 16), retailHash, 'what one wrote the next does not see');
});

t.test('9. sorted by code point', async (t) => {
  t.strictSame(['\uffff', '😀', 'b', 'B', '10', '9'].sort(compareStrings), ['10', '9', 'B', 'b', '\uffff', '😀']);
});

const address = { address1: '1 A St', address2: '', city: 'X', state: 'TX', country: 'USA', zip: '12345' };

t.test('the calculator is Python', async (t) => {
  const cases: [string, string][] = [
    ['2 + 2', '4.0'],
    ['-2 ** 2', '-4.0'],
    ['2 ** -1', '0.5'],
    ['7 // 2', '3.0'],
    ['-7 // 2', '-4.0'],
    ['7. // -2', '-4.0'],
    ['1.0 // 0.1', '9.0'],
    ['2 ** 3 ** 2', '512.0'],
    ['--3', '3.0'],
    ['.5 + 1.', '1.5'],
    ['00', '0.0'],
    ['(1 + 2) * 3', '9.0'],
    ['9007199254740993 - 9007199254740992', '1.0'],
    ['10 ** 20 / 3', '3.333333333333333e+19'],
    ['0.125', '0.12'],
    ['1/3', '0.33'],
    ['-0.001', '-0.0'],
    ['-5. * 0', '-0.0'],
    ['-(0. - 0)', '-0.0'],
    ['-0. // 4', '-0.0'],
    ['0 // -331.61', '-0.0'],
    ['-0. // -4.5', '0.0'],
    ['3 ** 35. - -11.005', '5.003154509899971e+16'],
    ['0.7 ** -88.', '42792974874953.88'],
    ['123456789 ** 1.9', '2365257654448936.5'],
  ];
  for (const [text, value] of cases) t.equal(calculate(text), value, text);
  for (const text of [
    '',
    '2 +',
    '1/0',
    '()',
    '2(3)',
    '007',
    '1 2',
    '1..2',
    '2 * * 3',
    '1_0',
    '__import__',
    '(-8) ** 0.5',
    '9 ** 9 ** 9',
    '10.0 ** 400',
    '(',
  ]) {
    t.throws(() => calculate(text), PythonError, text);
  }
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom(...'0123456789+-*/(). '), maxLength: 12 }), (text) => {
      try {
        return /^(-?\d|-?inf|nan)/.test(calculate(text));
      } catch (error) {
        return error instanceof PythonError;
      }
    }),
    { seed: 4, numRuns: 3000 },
  );
});

t.test('any call is answered as Python answers, never with an error of our own', skip, async (t) => {
  const odd = fc.oneof(
    fc.constantFrom<unknown>(
      null,
      true,
      0n,
      -1n,
      10n ** 40n,
      2.5,
      5,
      -0,
      1e22,
      Number.NaN,
      Number.POSITIVE_INFINITY,
      '',
      'pending',
      '#W2378156',
      'credit_card_9513926',
      '9523456873',
      'HAT001',
      '2024-05-16',
      'C1001',
      'L1001',
      'economy',
    ),
    fc.jsonValue({ maxDepth: 2 }).map(exactJson),
  );
  const kinds = ['TypeError', 'RangeError', 'ReferenceError', 'SyntaxError'];
  for (const name of ['retail', 'airline', 'telecom', 'mock'] as const) {
    const { domain } = tau2Data(dataFolder, name);
    for (const [side, kit] of [
      ['assistant', domain.agent],
      ['user', domain.user],
    ] as const) {
      for (const schema of kit?.schemas() ?? []) {
        const { name: tool, parameters } = schema.function;
        const fields = Object.keys((parameters as { properties?: object }).properties ?? {});
        fc.assert(
          fc.property(fc.record(Object.fromEntries(fields.map((field) => [field, odd]))), (args) => {
            const world = domain.world(NO_FIXES);
            domain.sync?.(world);
            try {
              kit!.call(world, tool, args);
              domain.hashes(world);
              return true;
            } catch (error) {
              if (error instanceof PythonError) return true;
              throw new Error(
                `${side} ${tool}(${JSON.stringify(args)}): ${String(error)} ${kinds.includes((error as Error).name) ? (error as Error).stack : ''}`,
              );
            }
          }),
          { seed: 5, numRuns: name === 'telecom' || name === 'mock' ? 40 : 15 },
        );
      }
    }
  }
  t.pass('all were');
});

t.test('binding errors are CPython’s', skip, async (t) => {
  const s = session('retail');
  const say = (args: Record<string, unknown>) => s.respond({ name: 'find_user_id_by_name_zip', arguments: args }).content;
  t.equal(
    say({ first_name: 'a', last_name: 'b' }),
    "Error: RetailTools.find_user_id_by_name_zip() missing 1 required positional argument: 'zip'",
  );
  t.equal(
    say({ zip: '1' }),
    "Error: RetailTools.find_user_id_by_name_zip() missing 2 required positional arguments: 'first_name' and 'last_name'",
  );
  t.equal(
    say({}),
    "Error: RetailTools.find_user_id_by_name_zip() missing 3 required positional arguments: 'first_name', 'last_name', and 'zip'",
  );
  t.equal(say({ foo: 1 }), "Error: RetailTools.find_user_id_by_name_zip() got an unexpected keyword argument 'foo'");
  t.match(say({ tool_name: 'x' }), /^Error: .*multiple values/);
  t.equal(repr(["it's", 'a"b', 1n, true, null, { k: 2.5 }]), `["it's", 'a"b', 1, True, None, {'k': 2.5}]`);
});

t.test('reads never touch the state', skip, async (t) => {
  const { domain, task } = tau2Data(dataFolder, 'telecom');
  const s = session('telecom');
  s.begin(task(tau2Data(dataFolder, 'telecom').split('small')[0]!).initial_state, []);
  const before = domain.hashes(s.world);
  for (const kit of [domain.agent, domain.user!]) {
    for (const name of kit.names.filter((n) => kit.kind(n) !== 'write')) {
      s.respond({
        name,
        arguments: name === 'check_app_status' ? { app_name: 'messaging' } : {},
        requestor: kit === domain.agent ? 'assistant' : 'user',
      });
    }
  }
  t.strictSame(domain.hashes(s.world), before);
});

t.test('tools are declared as the original declares them: names, order, arguments', skip, async (t) => {
  const folder = join(dataFolder, 'tool_schemas');
  if (!existsSync(folder)) return t.comment('no schemas to compare with');
  for (const name of ['retail', 'airline', 'telecom', 'mock'] as const) {
    const { domain } = tau2Data(dataFolder, name);
    for (const [side, kit] of [
      ['agent', domain.agent],
      ['user', domain.user],
    ] as const) {
      const file = join(folder, `${name}_${side}.json`);
      if (!kit || !existsSync(file)) continue;
      const theirs = JSON.parse(readFileSync(file, 'utf8')) as { name: string; mutates_state: boolean; schema: Schema }[];
      const ours = kit.schemas() as unknown as Schema[];
      t.strictSame(
        ours.map((schema) => shapeOf(schema, kit.kind(schema.function.name) === 'write')),
        theirs.map((tool) => shapeOf(tool.schema, tool.mutates_state)),
        `${name} ${side}`,
      );
    }
  }
  interface Schema {
    function: { name: string; parameters: { properties?: Record<string, unknown>; required?: string[] } };
  }
  function shapeOf({ function: f }: Schema, writes: boolean) {
    return { name: f.name, writes, arguments: Object.keys(f.parameters.properties ?? {}), required: f.parameters.required ?? [] };
  }
});
