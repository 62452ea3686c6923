// The server's event stream, with reconnection.

/** The stream counts as lost after three missing events. */
const EVENT_TIMEOUT_MS = 3500;
const [MIN_WAIT_MS, MAX_WAIT_MS] = [500, 5000];

/** Subscribes to `/live/events`; `onstate` gets whether it is connected. */
export function subscribe({ onevent, onstate }) {
  let source = null;
  let timer = 0;
  let wait = MIN_WAIT_MS;
  const disconnect = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
    onstate(false);
    // `EventSource` gives up after an error response.
    setTimeout(open, wait);
    wait = Math.min(MAX_WAIT_MS, wait * 2);
  };
  const restartTimer = () => {
    clearTimeout(timer);
    timer = setTimeout(disconnect, EVENT_TIMEOUT_MS);
  };
  const open = () => {
    source = new EventSource('/live/events');
    const own = source;
    restartTimer();
    source.onmessage = ({ data }) => {
      if (own !== source) return;
      let event;
      try {
        event = JSON.parse(data);
      } catch {
        // Not our server, or a proxy that cut it.
        disconnect();
        return;
      }
      wait = MIN_WAIT_MS;
      restartTimer();
      onstate(true);
      onevent(event);
    };
    source.onerror = () => {
      if (own === source && own.readyState !== EventSource.CONNECTING) disconnect();
      else if (own === source) onstate(false);
    };
  };
  open();
}
