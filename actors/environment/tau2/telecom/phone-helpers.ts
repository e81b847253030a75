/** Methods that tasks call on the user's side: to set a phone up or break it, and to look at it afterwards. */
import { equals, lookUp, lower, numberOf, PythonError, repr, str, unordered } from '../python/values.ts';
import type { Helper } from '../toolkit.ts';
import * as phone from './phone.ts';
import type { Permissions } from './user-data.ts';
import type { TelecomWorld } from './world.ts';

const onOff = (on: unknown): string => (on ? 'ON' : 'OFF');
const STATUSES = ['connected', 'searching', 'no_service', 'emergency_only'];

export const phoneHelpers: Record<string, Helper<TelecomWorld>> = {
  set_user_info({ surroundings }, { name, phone_number }) {
    surroundings.name = name as string;
    surroundings.phone_number = phone_number as string;
    return null;
  },
  set_user_location({ surroundings }, { abroad }) {
    surroundings.is_abroad = abroad as boolean;
    return null;
  },
  turn_airplane_mode_on(world) {
    if (!phone.toggleAirplaneMode(world)) phone.toggleAirplaneMode(world);
    return 'Airplane Mode is now ON.';
  },
  turn_airplane_mode_off(world) {
    if (phone.toggleAirplaneMode(world)) phone.toggleAirplaneMode(world);
    return 'Airplane Mode is now OFF.';
  },
  unseat_sim_card(world) {
    world.phone.sim_card_missing = true;
    phone.searchNetwork(world);
    return 'SIM card un-seated successfully.';
  },
  lock_sim_card(world, { mode }) {
    if (mode === 'pin') world.phone.sim_card_status = 'locked_pin';
    else if (mode === 'puk') world.phone.sim_card_status = 'locked_puk';
    phone.searchNetwork(world);
    return `SIM card locked successfully in ${str(mode)} mode.`;
  },
  turn_data_on(world) {
    world.phone.data_enabled = true;
    return 'Data connection restored.';
  },
  turn_data_off(world) {
    phone.turn(world, 'data_enabled', false);
    return 'Data connection broken.';
  },
  turn_roaming_on(world) {
    phone.turn(world, 'roaming_enabled', true);
    return 'Data Roaming is now ON.';
  },
  turn_roaming_off(world) {
    phone.turn(world, 'roaming_enabled', false);
    return 'Data Roaming is now OFF.';
  },
  turn_data_saver_mode_on(world) {
    phone.turn(world, 'data_saver_mode', true);
    return 'Data Saver Mode is now ON.';
  },
  turn_data_saver_mode_off(world) {
    phone.turn(world, 'data_saver_mode', false);
    return 'Data Saver Mode is now OFF.';
  },
  break_apn_settings(world) {
    phone.apnOf(world, 'apn_name').apn_name = 'broken';
    phone.searchNetwork(world);
    phone.expect(world.phone.network_connection_status === 'no_service');
    return 'APN settings broken. Please call reset_apn_settings() to fix.';
  },
  break_apn_mms_setting(world) {
    phone.apnOf(world, 'mmsc_url').mmsc_url = null;
    phone.expect(!phone.canSendMms(world));
    return 'APN MMS setting broken. Please call reset_apn_settings() to fix.';
  },
  set_wifi_calling(world, { enabled, mms_over_wifi }) {
    if (!equals(world.phone.wifi_calling_enabled, enabled)) phone.toggle(world, 'wifi_calling_enabled');
    const said = `Wi-Fi Calling is now ${onOff(enabled)}.`;
    if (mms_over_wifi === undefined || mms_over_wifi === null) return said;
    world.phone.wifi_calling_mms_over_wifi = mms_over_wifi as boolean;
    return `${said}\nMMS over Wi-Fi is now ${onOff(mms_over_wifi)}.`;
  },
  break_vpn(world) {
    phone.connectVpn(world);
    if (!world.phone.vpn_details) throw new PythonError('AttributeError', "'NoneType' object has no attribute 'server_performance'");
    world.phone.vpn_details.server_performance = 'poor';
    return 'VPN connection broken.';
  },
  remove_app_permission(world, { app_name, permission }) {
    const app = lookUp(world.phone.app_statuses, app_name);
    const name = lower(permission);
    if (!app) return [false, `App '${str(app_name)}' not found. Cannot remove permission.`];
    if (!Object.hasOwn(app.permissions, name)) return [false, `Permission '${name}' not tracked for app '${str(app_name)}'.`];
    app.permissions[name as keyof Permissions] = false;
    return [true, `Permission '${name}' removed from app '${str(app_name)}'.`];
  },
  simulate_network_search(world) {
    phone.searchNetwork(world);
    return null;
  },
  assert_airplane_mode_status: (world, { expected_status }) => equals(world.phone.airplane_mode, expected_status),
  assert_service_status(world, { expected_status }) {
    if (!STATUSES.includes(expected_status as string)) {
      throw new PythonError('ValueError', `${repr(expected_status)} is not a valid NetworkStatus`);
    }
    return world.phone.network_connection_status === expected_status;
  },
  assert_mobile_data_status: (world, { expected_status }) => equals(phone.mobileDataWorks(world), expected_status),
  assert_mobile_roaming_status: (world, { expected_status }) => equals(world.phone.roaming_enabled, expected_status),
  assert_mobile_data_saver_mode_status: (world, { expected_status }) => equals(world.phone.data_saver_mode, expected_status),
  assert_internet_speed(world, { expected_speed, expected_desc }) {
    const { speed, description } = phone.speedTest(world);
    const wanted = numberOf(expected_speed);
    if (wanted === undefined) throw unordered('>=', speed ?? 0n, expected_speed);
    const fast = (speed ?? 0) >= wanted;
    if (expected_desc === undefined || expected_desc === null) return fast;
    return fast && description.toLowerCase() === lower(expected_desc);
  },
  assert_internet_not_excellent: (world) => phone.speedTest(world).description !== 'Excellent',
  assert_can_send_mms: (world, { expected_status }) => equals(phone.canSendMms(world), expected_status),
  assert_mobile_data_usage_exceeded: (world, { expected_status }) => equals(world.surroundings.mobile_data_usage_exceeded, expected_status),
};
