/* Search works in pages that were opened from disk, too. Browsers start no workers from files, so
   there the search runs in a hidden frame, which looks like a worker to the rest. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.document.open();
      inside.document.write("<body></body>");
      inside.document.close();
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded = new Promise((loaded) => {
        const script = inside.document.createElement("script");
        script.src = address;
        script.onload = () => loaded(inside);
        inside.document.body.append(script);
      });
    }

    postMessage(data) {
      this.loaded.then((inside) => {
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      });
    }
  };
}
