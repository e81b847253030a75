// Bytes between workers: codec, frames, channels and what carries them.

export { HEAD } from './authentication.ts';
export { blockPool, isShortage, SHARED_BYTES, shareBlocks, unshareBlocks, viewToFill } from './blocks.ts';
export { Channel, type ChannelHandler, type Transport } from './channel.ts';
export { registerWireClass } from './codec.ts';
export { decodeAlone, decodeShared, Encoded, encodeAlone } from './encoded.ts';
export { decodeError, type ErrorData, encodeError } from './errors.ts';
export { type FrameLimits, FrameReader, frameLimits, PREFIX_BYTES, writePrefix } from './frame.ts';
export { loopback } from './loopback.ts';
export { type Admission, LocalNetwork, type Network } from './network.ts';
export { attach, type Broker, MainBroker, openPort, type PortMessage, ThreadBroker } from './port.ts';
export { connect, type Listener, listen, socketPath } from './socket.ts';
