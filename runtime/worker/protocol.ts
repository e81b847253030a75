// Messages on a channel between two workers: arrays whose first element is the kind.

/**
 * [CALL, call, actor, incarnation, method, args, remaining ms (0: no deadline), abortable (0 or 1)]; only calls that need one of them have
 * also: concurrency group ('': the method's), items that a stream may send (0: no stream), idempotency key (0: none), lowest key that the
 * caller still waits for
 */
export const CALL = 0;
/** [ANSWER, call, value] */
export const ANSWER = 1;
/** [FAILURE, call, error data] */
export const FAILURE = 2;
/** [ABORT, call, actor]: the caller no longer waits */
export const ABORT = 3;
/** [FETCH, call, ref]: the value of a ref that the receiver owns */
export const FETCH = 4;
/** [GIVE_BACK, ref]: the sender no longer holds the receiver's ref */
export const GIVE_BACK = 5;
/** [BORROW, ref, worker]: the sender passed the receiver's ref on to that worker */
export const BORROW = 6;
/** [ITEM, call, value]: the next item of a stream */
export const ITEM = 7;
/** [CREDIT, call, items]: that many items more may be sent */
export const CREDIT = 8;
/** [ACKNOWLEDGE, actor, key]: the caller knows the answers to all keys below */
export const ACKNOWLEDGE = 9;
/** [BYE, 0]: nobody uses the channel; the sender sends nothing more before the answer */
export const BYE = 10;
/** [AGREE, 1 or 0]: the channel is closed, or is still needed */
export const AGREE = 11;
/** [RELAY, worker, channel, what]: for, or from, another worker, by way of the relay (relay.ts) */
export const RELAY = 12;
/** [PEEK, call, ref]: answered with nothing when the receiver has the value of its ref, or its error */
export const PEEK = 13;
/** [TRACE, call, actor, worker, number, path]: whether the call that the sender has made waits for one of that worker (circles.ts) */
export const TRACE = 14;
