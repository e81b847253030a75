// Clusters over several hosts: the doors through which others come in, and the links over which workers talk to those of other hosts.
export { type HostPort, isClusterUrl, isLoopback, parseClusterUrl, parseListen } from './address.ts';
export { dialDoor } from './dial.ts';
export { Door, type DoorOptions } from './door.ts';
export { currentOrders, type Done, type EmulationOrder, emulate, followEmulations, type LinkRules } from './emulation.ts';
export { Gateway, type GatewayOptions } from './gateway.ts';
export type { Room } from './handshake.ts';
export { connectHead, HostWay, type HostWayOptions } from './host-way.ts';
export type { Pipe, PipeEnd } from './pipe.ts';
export { PipeTransport } from './pipe-transport.ts';
export { nobodyListens } from './probe.ts';
export { readTls, type TlsFiles, type TlsPaths } from './tls.ts';
export { findMetricsToken, findToken } from './tokens.ts';
