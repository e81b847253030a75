// What an observer and a run tell each other, on an authenticated channel (frames as between workers, an observers' token instead of the
// run's): arrays whose first element is the kind. Followed output comes in portions, the next when the last was taken.

/** Observer: [ASK, request, name, options] */
export const ASK = 0;
/** Observer: [MORE, request]: took the items, is ready for others */
export const MORE = 1;
/** Observer: [CANCEL, request] */
export const CANCEL = 2;
/** Run: [DONE, request, value] */
export const DONE = 3;
/** Run: [FAILED, request, error data] */
export const FAILED = 4;
/** Run: [ITEMS, request, lines, how often older lines had to make room before they were taken] */
export const ITEMS = 5;

/** The observers' token, 64 hexadecimal digits, readable by this user only. */
export const TOKEN_FILE = 'observe.token';
