// Bytes between workers: codec, frames, channels and what carries them.

export {
  callerSide,
  HEAD,
  HELLO_BYTES,
  type ListenerSide,
  listenerSide,
  PROOF_BYTES,
  type Purpose,
  purposes,
  REPLY_BYTES,
} from './authentication.ts';
export { blockPool, contentBytes, DESCRIPTOR_BYTES, isShortage, SHARED_BYTES, shareBlocks, unshareBlocks, viewToFill } from './blocks.ts';
export { BLOCK, BroughtBlocks, BYTES, RECORD_HEADER, RecordReader, recordHeader } from './carried.ts';
export { type BlockCarrier, Channel, type ChannelHandler, type Transport } from './channel.ts';
export { registerWireClass } from './codec.ts';
export { decodeAlone, decodeShared, Encoded, encodeAlone } from './encoded.ts';
export { decodeError, type ErrorData, encodeError } from './errors.ts';
export { type FrameLimits, FrameReader, frameLimits, PREFIX_BYTES, writePrefix } from './frame.ts';
export { askDoor, dialGateway, readWanted, WANTED_BYTES } from './gateway-dial.ts';
export { loopback } from './loopback.ts';
export { type Abroad, type Admission, LocalNetwork, type Network } from './network.ts';
export { attach, type Broker, MainBroker, openPort, type PortMessage, ThreadBroker } from './port.ts';
export { admissions, connect, dialSocket, type Entered, handshake, type Listener, listen, listenSockets, socketPath } from './socket.ts';
export { refuseIterators } from './unsendable.ts';
