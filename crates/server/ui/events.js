// The server's events, as long as the page is open. Comes back by itself, and says when it is lost.
// Knows nothing of what the events say.

/** Silence after which a stream counts as lost: three events. */
const SILENCE_MS = 3500;
const [FIRST_WAIT_MS, LONGEST_WAIT_MS] = [500, 5000];

/** Follows `/live/events`; `onevent` gets each, `onstate` true or false. */
export function follow({ onevent, onstate }) {
  let source = null;
  let silence = 0;
  let wait = FIRST_WAIT_MS;
  const lose = () => {
    clearTimeout(silence);
    source?.close();
    onstate(false);
    // The browser gives up where the answer was no stream; this does not.
    setTimeout(open, wait);
    wait = Math.min(LONGEST_WAIT_MS, wait * 2);
  };
  const expect = () => {
    clearTimeout(silence);
    silence = setTimeout(lose, SILENCE_MS);
  };
  const open = () => {
    source = new EventSource('/live/events');
    const own = source;
    expect();
    source.onmessage = ({ data }) => {
      if (own !== source) return;
      wait = FIRST_WAIT_MS;
      expect();
      onstate(true);
      onevent(JSON.parse(data));
    };
    source.onerror = () => {
      if (own === source && own.readyState !== EventSource.CONNECTING) lose();
      else if (own === source) onstate(false);
    };
  };
  open();
}
