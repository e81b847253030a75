/** How the user's phone behaves: network search, switches, speed, messages with pictures. */
import { round2 } from '../python/float.ts';
import { isModel } from '../python/shape.ts';
import { hashable, noAttribute, PythonError } from '../python/values.ts';
import { type Apn, defaultApn, type Permissions } from './user-data.ts';
import type { TelecomWorld } from './world.ts';

export function expect(condition: boolean): void {
  if (!condition) throw new PythonError('AssertionError', '');
}

/** The settings of the access point; anything may have been assigned to them. */
export function apnOf(world: TelecomWorld, attribute: string): Apn {
  const settings = world.phone.active_apn_settings;
  if (!isModel(settings)) throw noAttribute(settings, attribute);
  return settings;
}

export function simStatus({ phone }: TelecomWorld): string {
  return phone.sim_card_missing ? 'missing' : phone.sim_card_status;
}

const TECHNOLOGY: Readonly<Record<string, string>> = { '4g_only': '4G', '3g_only': '3G', '2g_only': '2G' };

/** Connects anew, by SIM card, preference, access point and line. */
export function searchNetwork(world: TelecomWorld): void {
  const { phone, surroundings } = world;
  const offline = () => {
    phone.network_connection_status = 'no_service';
    phone.network_technology_connected = 'none';
    phone.network_signal_strength = 'none';
  };
  if (simStatus(world) === 'active') {
    phone.network_connection_status = 'connected';
    const signal = (technology: string) => surroundings.signal_strength.get(technology) ?? 'none';
    const fast = phone.network_mode_preference === '4g_5g_preferred' && signal('5G') !== 'none';
    const technology = fast ? '5G' : (TECHNOLOGY[phone.network_mode_preference] ?? '4G');
    phone.network_technology_connected = technology;
    phone.network_signal_strength = signal(technology);
  } else offline();
  if (phone.airplane_mode) offline();
  if (apnOf(world, 'apn_name').apn_name === 'broken') offline();
  if (!surroundings.line_active) offline();
}

const SIGNALS: Readonly<Record<string, string>> = {
  none: '📵 No Signal',
  poor: '📶¹ Poor',
  fair: '📶² Fair',
  good: '📶³ Good',
  excellent: '📶⁴ Excellent',
};

export function statusBar({ phone }: TelecomWorld): string {
  const shown: string[] = [];
  if (phone.airplane_mode) shown.push('✈️ Airplane Mode');
  else {
    shown.push(SIGNALS[phone.network_signal_strength] ?? '📵 No Signal');
    const connected = phone.network_technology_connected !== 'none';
    if (connected) shown.push(phone.network_technology_connected);
    if (phone.data_enabled && connected) {
      shown.push('📱 Data Enabled');
      if (phone.data_saver_mode) shown.push('🔽 Data Saver');
    } else shown.push('📵 Data Disabled');
  }
  if (phone.wifi_enabled && phone.wifi_connected) shown.push(phone.wifi_ssid ? `📡 Connected to ${phone.wifi_ssid}` : '📡 Enabled');
  if (phone.vpn_connected) shown.push('🔒 VPN Connected');
  shown.push(`🔋 ${phone.battery_level}%`);
  return shown.join(' | ');
}

export function mobileDataWorks({ phone, surroundings }: TelecomWorld): boolean {
  if (phone.airplane_mode || phone.network_signal_strength === 'none') return false;
  if (phone.network_connection_status === 'no_service') return false;
  if (surroundings.is_abroad && (!phone.roaming_enabled || !surroundings.roaming_allowed)) return false;
  return phone.data_enabled && !surroundings.mobile_data_usage_exceeded;
}

/** Mbit/s of each technology, between which a speed lies. */
const SPEEDS: Readonly<Record<string, readonly [number, number]>> = { '2G': [0.1, 0.4], '3G': [1, 5], '4G': [10, 100], '5G': [50, 500] };
const FACTORS: Readonly<Record<string, number>> = { poor: 0.2, fair: 0.5, good: 0.8, excellent: 1 };

export function speedTest(world: TelecomWorld): { speed: number | null; description: string } {
  if (!mobileDataWorks(world)) return { speed: null, description: 'No Connection' };
  const { phone } = world;
  let factor = phone.vpn_connected && phone.vpn_details?.server_performance === 'poor' ? 0.1 : 1;
  if (phone.data_saver_mode) factor *= 0.2;
  const [low, high] = SPEEDS[phone.network_technology_connected] ?? [0, 0];
  const speed = round2(((low + high) / 2) * (FACTORS[phone.network_signal_strength] ?? 0) * factor);
  const description = speed < 1 ? 'Very Poor' : speed < 5 ? 'Poor' : speed < 25 ? 'Fair' : speed < 100 ? 'Good' : 'Excellent';
  return { speed, description };
}

function disconnectWifi({ phone }: TelecomWorld): void {
  phone.wifi_connected = false;
  phone.wifi_ssid = null;
  phone.wifi_signal_strength = 'none';
}

export function toggleAirplaneMode(world: TelecomWorld): boolean {
  const { phone } = world;
  phone.airplane_mode = !phone.airplane_mode;
  if (phone.airplane_mode) {
    disconnectWifi(world);
    if (phone.vpn_connected) disconnectVpn(world);
  } else {
    phone.network_connection_status = 'searching';
    if (phone.wifi_enabled) disconnectWifi(world);
  }
  searchNetwork(world);
  return phone.airplane_mode;
}

/** Undefined in airplane mode, where it cannot be switched. */
export function toggleWifi(world: TelecomWorld): boolean | undefined {
  const { phone } = world;
  if (phone.airplane_mode) return undefined;
  phone.wifi_enabled = !phone.wifi_enabled;
  if (!phone.wifi_enabled) disconnectWifi(world);
  return phone.wifi_enabled;
}

type Switch = 'data_enabled' | 'roaming_enabled' | 'data_saver_mode' | 'wifi_calling_enabled';

export function toggle(world: TelecomWorld, which: Switch): boolean {
  const { phone } = world;
  phone[which] = !phone[which];
  if (which === 'data_enabled' || which === 'roaming_enabled') searchNetwork(world);
  return phone[which];
}

/** Toggles, once more if need be. */
export function turn(world: TelecomWorld, which: Switch, on: boolean): void {
  if (toggle(world, which) !== on) toggle(world, which);
}

/** False where one is connected already. */
export function connectVpn(world: TelecomWorld): boolean {
  const { phone } = world;
  if (phone.vpn_connected) return false;
  phone.vpn_connected = true;
  phone.vpn_details = world.vpn;
  return true;
}

export function disconnectVpn({ phone }: TelecomWorld): boolean {
  if (!phone.vpn_connected) return false;
  phone.vpn_connected = false;
  phone.vpn_details = null;
  return true;
}

export function permissionsOf(world: TelecomWorld, app: unknown): Permissions | undefined {
  hashable(app);
  return typeof app === 'string' ? world.phone.app_statuses.get(app)?.permissions : undefined;
}

export function canSendMms(world: TelecomWorld): boolean {
  const { phone } = world;
  if (!mobileDataWorks(world) || phone.network_technology_connected === '2G') return false;
  if (phone.wifi_calling_enabled && phone.wifi_calling_mms_over_wifi) return false;
  if (apnOf(world, 'mmsc_url').mmsc_url === null) return false;
  const permissions = permissionsOf(world, 'messaging');
  if (!permissions) return false;
  return permissions.storage && permissions.sms;
}

export function reboot(world: TelecomWorld): string {
  const lines: string[] = [];
  if (apnOf(world, 'reset_at_reboot').reset_at_reboot) {
    lines.push('Resetting APN settings...');
    world.phone.active_apn_settings = defaultApn();
  }
  lines.push('Restarting network services...');
  world.phone.network_connection_status = 'searching';
  searchNetwork(world);
  return lines.join('\n');
}
