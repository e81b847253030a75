/** The telecom user's 30 tools: what a person can see and do on the phone. */
import { z } from 'zod';
import { fixed2 } from '../python/float.ts';
import { validate } from '../python/shape.ts';
import { isDict, lower, noAttribute, repr, str } from '../python/values.ts';
import { type Tau2Tool, type ToolKind, Toolkit, tau2Tool } from '../toolkit.ts';
import * as phone from './phone.ts';
import { phoneHelpers } from './phone-helpers.ts';
import { apn, MODES, type Permissions } from './user-data.ts';
import type { TelecomWorld } from './world.ts';

/** A tool without arguments. */
function simple(name: string, kind: ToolKind, description: string, run: (world: TelecomWorld) => string): Tau2Tool<TelecomWorld> {
  return tau2Tool({ name, kind, description, parameters: z.object({}), run });
}

const withBar = (world: TelecomWorld, said: string): string => `${said}\nStatus Bar: ${phone.statusBar(world)}`;
const onOff = (on: boolean): string => (on ? 'ON' : 'OFF');
const yesNo = (yes: boolean): string => (yes ? 'Yes' : 'No');
/** A setting that should be one of some words, but may hold what was assigned. */
const word = (value: unknown): string => {
  if (typeof value !== 'string') throw noAttribute(value, 'value');
  return value;
};

const granted = (permissions: Permissions): string[] =>
  Object.entries(permissions)
    .filter(([, allowed]) => allowed)
    .map(([name]) => name.replaceAll('_', ' ').toLowerCase());

const appName = z.string().describe("such as 'messaging'");

function networkStatus(world: TelecomWorld): string {
  const p = world.phone;
  const lines = [
    `Airplane Mode: ${onOff(p.airplane_mode)}`,
    `SIM Card Status: ${phone.simStatus(world)}`,
    `Cellular Connection: ${p.network_connection_status}`,
    `Cellular Signal: ${p.network_signal_strength}`,
    `Cellular Network Type: ${p.network_technology_connected}`,
    `Mobile Data Enabled: ${yesNo(p.data_enabled)}`,
    `Data Roaming Enabled: ${yesNo(p.roaming_enabled)}`,
    `Wi-Fi Radio: ${onOff(p.wifi_enabled)}`,
    `Wi-Fi Connected: ${yesNo(p.wifi_connected)}`,
  ];
  if (p.wifi_connected) lines.push(`Connected Wi-Fi Network: ${str(p.wifi_ssid)}`);
  return lines.join('\n');
}

const ADVICE: Readonly<Record<string, string>> = {
  'Very Poor': 'Connection is very slow. Basic web browsing might be difficult.',
  Poor: 'Connection is slow. Web browsing may be sluggish, streaming difficult.',
  Fair: 'Connection is okay for web browsing and some standard definition streaming.',
  Good: 'Connection is good for most activities, including HD streaming.',
  Excellent: 'Connection is very fast.',
};

const SIM: Readonly<Record<string, string>> = {
  active: 'Your SIM card is active and working.',
  missing: 'No SIM card detected in the phone.',
  locked_pin: 'The SIM card is locked with a PIN code.',
  locked_puk: 'The SIM card is locked with a PUK code.',
};

const network: Tau2Tool<TelecomWorld>[] = [
  simple('check_status_bar', 'read', 'What the status bar of your phone shows.', (w) => `Status Bar: ${phone.statusBar(w)}`),
  simple('check_network_status', 'read', 'Connection, signal, mobile data and Wi-Fi of your phone.', networkStatus),
  simple(
    'check_network_mode_preference',
    'read',
    'Which kinds of network your phone prefers.',
    (w) => `Network Mode Preference: ${word(w.phone.network_mode_preference)}`,
  ),
  tau2Tool({
    name: 'set_network_mode_preference',
    kind: 'write',
    description: 'Sets which kinds of network your phone prefers.',
    parameters: z.object({ mode: z.enum(MODES as [string, ...string[]]).describe('the preference') }),
    run(world: TelecomWorld, { mode }) {
      // What is no text is assigned unchecked, as in the original.
      if (typeof mode !== 'string' || MODES.includes(mode)) {
        world.phone.network_mode_preference = mode as string;
        phone.searchNetwork(world);
      }
      if (mode === null || (typeof mode === 'string' && !MODES.includes(mode))) {
        return withBar(world, `Failed to set network mode: '${str(mode)}' is not a valid option. Please use one of: ${MODES.join(', ')}`);
      }
      return withBar(world, `Preferred Network Mode set to: ${word(mode)}`);
    },
  }),
  simple('run_speed_test', 'read', 'Measures the speed of mobile data.', (w) => {
    const { speed, description } = phone.speedTest(w);
    if (speed === null) return `Speed test failed: ${description}.`;
    return `Speed Test Result: ${fixed2(speed)} Mbps (${description}). ${ADVICE[description] ?? ''}`;
  }),
  simple('toggle_airplane_mode', 'write', 'Switches airplane mode on or off.', (w) => {
    const on = phone.toggleAirplaneMode(w);
    return withBar(w, `Airplane Mode is now ${onOff(on)}.`);
  }),
  simple('check_sim_status', 'read', 'Whether the SIM card is there and works.', (w) => SIM[phone.simStatus(w)] ?? ''),
  simple('reseat_sim_card', 'write', 'Takes the SIM card out and puts it in again.', (w) => {
    w.phone.sim_card_missing = false;
    phone.searchNetwork(w);
    phone.expect(phone.simStatus(w) !== 'missing');
    return withBar(w, 'SIM card re-seated successfully.');
  }),
  simple('toggle_data', 'write', 'Switches mobile data on or off.', (w) => {
    const on = phone.toggle(w, 'data_enabled');
    return withBar(w, `Mobile Data is now ${onOff(on)}.`);
  }),
  simple('toggle_roaming', 'write', 'Switches data roaming on or off.', (w) => {
    const on = phone.toggle(w, 'roaming_enabled');
    return withBar(w, `Data Roaming is now ${onOff(on)}.`);
  }),
  simple('check_data_restriction_status', 'read', 'Whether something limits the use of data.', (w) =>
    w.phone.data_saver_mode ? 'Data Saver mode is ON (limits data usage).' : 'Data Saver mode is OFF.',
  ),
  simple('toggle_data_saver_mode', 'write', 'Switches the data saver on or off.', (w) => {
    const on = phone.toggle(w, 'data_saver_mode');
    return withBar(w, `Data Saver Mode is now ${onOff(on)}.`);
  }),
];

const settings: Tau2Tool<TelecomWorld>[] = [
  simple('check_apn_settings', 'read', 'The access point that your phone uses.', (w) => {
    const { apn_name, mmsc_url } = phone.apnOf(w, 'model_copy');
    const url = mmsc_url || 'Not Set';
    return `Current APN Name: ${word(apn_name)}\nMMSC URL (for picture messages): ${url}\n(These are technical settings, usually best left unchanged.)`;
  }),
  tau2Tool({
    name: 'set_apn_settings',
    kind: 'write',
    description: 'Sets the access point that your phone uses.',
    parameters: z.object({
      apn_settings: z
        .object({
          apn_name: z.enum(['internet', 'broken']).optional(),
          reset_at_reboot: z.boolean().optional(),
          mms_apn: z.string().nullable().optional(),
          mmsc_url: z.string().nullable().optional(),
          mms_proxy: z.string().nullable().optional(),
          mms_port: z.number().int().nullable().optional(),
        })
        .describe('the settings'),
    }),
    run(world: TelecomWorld, { apn_settings }) {
      const made = isDict(apn_settings) ? validate('APNSettings', apn, apn_settings) : (apn_settings as never);
      world.phone.active_apn_settings = made;
      const said = `APN settings set to: ${word(phone.apnOf(world, 'apn_name').apn_name)}`;
      phone.searchNetwork(world);
      return withBar(world, said);
    },
  }),
  simple('reset_apn_settings', 'write', 'Sets the access point back, with the next reboot.', (w) => {
    phone.apnOf(w, 'reset_at_reboot').reset_at_reboot = true;
    phone.searchNetwork(w);
    return withBar(w, 'APN settings will reset at reboot.');
  }),
  simple('check_wifi_status', 'read', 'Whether Wi-Fi is on and connected.', ({ phone: p }) => {
    if (!p.wifi_enabled) return 'Wi-Fi is turned OFF.';
    if (!p.wifi_connected) return 'Wi-Fi is ON but not connected to any network.';
    return `Wi-Fi is ON and connected to '${str(p.wifi_ssid)}'. Signal strength: ${p.wifi_signal_strength}.`;
  }),
  simple('toggle_wifi', 'write', 'Switches Wi-Fi on or off.', (w) => {
    const on = phone.toggleWifi(w);
    return withBar(w, on === undefined ? 'Cannot change Wi-Fi settings while Airplane Mode is ON.' : `Wi-Fi is now ${onOff(on)}.`);
  }),
  simple(
    'check_wifi_calling_status',
    'read',
    'Whether calls go over Wi-Fi.',
    (w) => `Wi-Fi Calling is currently turned ${onOff(w.phone.wifi_calling_enabled)}.`,
  ),
  simple('toggle_wifi_calling', 'write', 'Switches calls over Wi-Fi on or off.', (w) => {
    const on = phone.toggle(w, 'wifi_calling_enabled');
    return withBar(w, `Wi-Fi Calling is now ${onOff(on)}.`);
  }),
  simple('check_vpn_status', 'read', 'Whether a VPN is on and connected.', ({ phone: p }) => {
    if (p.vpn_connected) {
      if (!p.vpn_details) return 'VPN is ON and connected (no specific details available).';
      const { server_address, protocol, server_performance: level } = p.vpn_details;
      // As Python prints the dict, the enum member with it.
      const shown = `<PerformanceLevel.${level.toUpperCase()}: '${level}'>`;
      return `VPN is ON and connected. Details: {'server_address': ${repr(server_address)}, 'protocol': ${repr(protocol)}, 'server_performance': ${shown}}`;
    }
    return p.vpn_enabled_setting ? 'VPN is turned ON in settings, but currently not connected.' : 'VPN is turned OFF.';
  }),
  simple('connect_vpn', 'write', 'Connects the VPN.', (w) =>
    phone.connectVpn(w) ? withBar(w, 'VPN connected successfully.') : 'VPN already connected.',
  ),
  simple('disconnect_vpn', 'write', 'Disconnects the VPN.', (w) => {
    const done = phone.disconnectVpn(w);
    return withBar(w, done ? 'VPN disconnected successfully.' : 'No active VPN connection to disconnect.');
  }),
];

const apps: Tau2Tool<TelecomWorld>[] = [
  simple(
    'check_installed_apps',
    'read',
    'The apps on your phone.',
    (w) => `The following apps are installed on the phone: ${[...w.phone.app_statuses.keys()].join(', ')}`,
  ),
  tau2Tool({
    name: 'check_app_status',
    kind: 'read',
    description: 'How an app is set up.',
    parameters: z.object({ app_name: appName }),
    run(world: TelecomWorld, { app_name }) {
      const permissions = phone.permissionsOf(world, app_name);
      if (!permissions) return `App '${str(app_name)}' not found on this phone.`;
      const names = granted(permissions);
      const lines =
        names.length === 0 ? [' - Permissions: None granted.'] : [' - Permissions Granted:', ...names.map((name) => `   - ${name}`)];
      return [`Status for App: ${str(app_name)}`, ...lines].join('\n');
    },
  }),
  tau2Tool({
    name: 'check_app_permissions',
    kind: 'read',
    description: 'What an app may do.',
    parameters: z.object({ app_name: appName }),
    run(world: TelecomWorld, { app_name }) {
      const permissions = phone.permissionsOf(world, app_name);
      if (!permissions) return `App '${str(app_name)}' not found on this phone.`;
      const names = granted(permissions);
      if (names.length === 0) return `App '${str(app_name)}' currently has no permissions granted.`;
      return `App '${str(app_name)}' has permission for: ${names.join(', ')}.`;
    },
  }),
  tau2Tool({
    name: 'grant_app_permission',
    kind: 'write',
    description: 'Lets an app do something.',
    parameters: z.object({ app_name: appName, permission: z.string().describe("what, in small letters, such as 'storage'") }),
    run(world: TelecomWorld, { app_name, permission }) {
      const permissions = phone.permissionsOf(world, app_name);
      const name = lower(permission);
      if (!permissions) return withBar(world, `Error. App '${str(app_name)}' not found. Cannot grant permission.`);
      if (!Object.hasOwn(permissions, name)) {
        const known = repr(Object.keys(permissions));
        return withBar(world, `Error. Permission '${name}' not tracked for app '${str(app_name)}', available permissions: ${known}`);
      }
      permissions[name as keyof Permissions] = true;
      return withBar(world, `Success. Permission '${name}' granted to app '${str(app_name)}'.`);
    },
  }),
  simple('can_send_mms', 'read', 'Whether your messaging app can send pictures.', (w) =>
    phone.canSendMms(w) ? 'Your messaging app can send MMS messages.' : 'Your messaging app cannot send MMS messages.',
  ),
  simple('reboot_device', 'write', 'Starts your phone anew.', (w) => {
    const said = phone.reboot(w);
    return withBar(w, said);
  }),
  simple('check_payment_request', 'read', 'Whether you are asked to pay a bill.', ({ surroundings: { payment_request: due } }) =>
    due === null
      ? 'No payment request has been made.'
      : `You have a payment request for bill ${due.bill_id} of ${str(due.amount_due)} USD.`,
  ),
  simple('make_payment', 'write', 'Pays the bill that you are asked to pay.', ({ surroundings: { payment_request: due } }) => {
    if (due === null) return 'You do not have a payment request.';
    due.paid = true;
    return `Payment of ${str(due.amount_due)} USD has been made for bill ${due.bill_id}.`;
  }),
];

export const telecomUserTools = new Toolkit<TelecomWorld>('TelecomUserTools', [...network, ...settings, ...apps], phoneHelpers);
