/** The user's side of the telecom world: a phone, and where the user is. */
import { bool, dict, float, int, literal, optional, type RecordOf, record, type Shape, text, withDefault } from '../python/shape.ts';

const or = <T>(shape: Shape<T>, value: T) => withDefault(shape, () => value);
const signal = literal('none', 'poor', 'fair', 'good', 'excellent') as Shape<string>;
const technology = literal('none', '2G', '3G', '4G', '5G') as Shape<string>;

export const MODES = ['4g_5g_preferred', '4g_only', '3g_only', '2g_only'];

export const apn = record(
  'APNSettings',
  {
    apn_name: or(literal('internet', 'broken') as Shape<string>, 'internet'),
    reset_at_reboot: or(bool, false),
    mms_apn: or(optional(text), 'mms'),
    mmsc_url: or(optional(text), 'http://mms.carrier.com/mms/wapenc'),
    mms_proxy: optional(text),
    mms_port: optional(int),
  },
  'forbid',
);
export type Apn = RecordOf<typeof apn.fields>;
export const defaultApn = (): Apn => apn.load({}, () => {}, '');

const vpn = record(
  'VpnDetails',
  {
    server_address: optional(text),
    protocol: optional(text),
    server_performance: or(literal('unknown', 'poor', 'fair', 'good', 'excellent') as Shape<string>, 'unknown'),
  },
  'forbid',
);
export type Vpn = RecordOf<typeof vpn.fields>;

const permissions = record(
  'AppPermissions',
  { sms: or(bool, false), storage: or(bool, false), phone: or(bool, false), network: or(bool, false) },
  'forbid',
);
export type Permissions = RecordOf<typeof permissions.fields>;
const granted = (...names: (keyof Permissions)[]): Permissions =>
  permissions.load(Object.fromEntries(names.map((name) => [name, true])), () => {}, '');

const app = record('AppStatus', { app_name: text, permissions: withDefault(permissions, () => granted()) }, 'forbid');
type App = RecordOf<typeof app.fields>;

const phone = record(
  'MockPhoneAttributes',
  {
    sim_card_status: or(literal('active', 'missing', 'locked_pin', 'locked_puk') as Shape<string>, 'active'),
    sim_card_missing: or(bool, false),
    airplane_mode: or(bool, false),
    network_signal_strength: or(signal, 'good'),
    network_technology_connected: or(technology, '5G'),
    network_connection_status: or(literal('connected', 'searching', 'no_service', 'emergency_only') as Shape<string>, 'connected'),
    battery_level: or(int, 80n),
    data_enabled: or(bool, true),
    roaming_enabled: or(bool, false),
    network_mode_preference: or(literal(...MODES) as Shape<string>, '4g_5g_preferred'),
    active_apn_settings: withDefault(apn, defaultApn),
    wifi_enabled: or(bool, false),
    wifi_connected: or(bool, false),
    wifi_ssid: optional(text),
    wifi_signal_strength: or(signal, 'none'),
    wifi_calling_enabled: or(bool, false),
    wifi_calling_mms_over_wifi: or(bool, false),
    data_saver_mode: or(bool, false),
    vpn_enabled_setting: or(bool, false),
    vpn_connected: or(bool, false),
    vpn_details: optional(vpn),
    app_statuses: withDefault(
      dict(app),
      () =>
        new Map<string, App>([
          ['messaging', { app_name: 'messaging', permissions: granted('sms', 'storage', 'phone') }],
          ['browser', { app_name: 'browser', permissions: granted('network', 'storage') }],
        ]),
    ),
  },
  'forbid',
);
export type Phone = RecordOf<typeof phone.fields>;

const paymentRequest = record('PaymentRequest', { bill_id: text, amount_due: float as Shape<number>, paid: or(bool, false) }, 'forbid');

const surroundings = record(
  'UserSurroundings',
  {
    name: optional(text),
    phone_number: optional(text),
    is_abroad: or(bool, false),
    roaming_allowed: or(bool, false),
    signal_strength: withDefault(
      dict(signal),
      () =>
        new Map([
          ['2G', 'poor'],
          ['3G', 'fair'],
          ['4G', 'good'],
          ['5G', 'excellent'],
        ]),
    ),
    mobile_data_usage_exceeded: or(bool, false),
    line_active: or(bool, true),
    payment_request: optional(paymentRequest),
  },
  'forbid',
);
export type Surroundings = RecordOf<typeof surroundings.fields>;

const blank = <T>(shape: Shape<T>) => withDefault(shape, () => shape.load({}, () => {}, ''));

export const userDatabase = record('TelecomUserDB', { device: blank(phone), surroundings: blank(surroundings) }, 'forbid');
export type TelecomUserDb = RecordOf<typeof userDatabase.fields>;
