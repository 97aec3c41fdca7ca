// Stand-in world for compiled n8n nodes. Text in, text out; nothing else can be reached.
(function (global) {
  'use strict';
  var LIMIT = 400000;
  // Kept before any crawled code runs: what that code does to these names is its own business.
  var stringify = JSON.stringify, parse = JSON.parse, keysOf = Object.keys, has = Function.prototype.call.bind(Object.prototype.hasOwnProperty);

  function standIn() {
    var target = function () {};
    var self = new Proxy(target, {
      get: function (t, key) {
        if (key === Symbol.toPrimitive) return function () { return ''; };
        if (key === Symbol.iterator) return function () { return [][Symbol.iterator](); };
        if (key === 'prototype') return target.prototype;
        if (key === 'toJSON') return function () { return undefined; };
        if (typeof key === 'symbol') return undefined;
        if (key === 'then') return function () { return self; };
        if (key === '__esModule') return true;
        return self;
      },
      apply: function () { return self; },
      // A subclass gets an object of its own, or its fields would be lost in the stand-in.
      construct: function (t, args, made) { return made === self ? self : Object.create(made.prototype || null); },
      set: function () { return true; },
    });
    return self;
  }
  var anything = standIn();

  function VersionedNodeType(nodeVersions, baseDescription) {
    this.baseDescription = baseDescription;
    this.nodeVersions = nodeVersions;
    var keys = Object.keys(nodeVersions).map(Number);
    this.currentVersion = (baseDescription && baseDescription.defaultVersion) || Math.max.apply(null, keys);
    this.description = baseDescription;
  }
  var CONNECTIONS = {
    Main: 'main', AiAgent: 'ai_agent', AiChain: 'ai_chain', AiDocument: 'ai_document',
    AiEmbedding: 'ai_embedding', AiLanguageModel: 'ai_languageModel', AiMemory: 'ai_memory',
    AiOutputParser: 'ai_outputParser', AiRetriever: 'ai_retriever', AiReranker: 'ai_reranker',
    AiTextSplitter: 'ai_textSplitter', AiTool: 'ai_tool', AiVectorStore: 'ai_vectorStore',
  };
  var workflow = new Proxy({
    __esModule: true, VersionedNodeType: VersionedNodeType,
    NodeConnectionType: CONNECTIONS, NodeConnectionTypes: CONNECTIONS,
  }, { get: function (t, key) { return key in t ? t[key] : (typeof key === 'symbol' ? undefined : anything); } });

  function join(base, path) {
    var parts = (path.charAt(0) === '.' ? base.split('/').slice(0, -1) : []).concat(path.split('/'));
    var out = [];
    parts.forEach(function (p) {
      if (p === '' || p === '.') return;
      if (p === '..') out.pop(); else out.push(p);
    });
    return out.join('/');
  }

  function loader(files) {
    var cache = Object.create(null);
    function find(path) {
      var tries = [path, path + '.js', path + '.cjs', path + '.json', path + '/index.js'];
      for (var i = 0; i < tries.length; i++) {
        if (has(files, tries[i])) return tries[i];
      }
      return null;
    }
    function load(path) {
      if (cache[path]) return cache[path].exports;
      var module = { exports: {} };
      cache[path] = module;
      if (/\.json$/.test(path)) { module.exports = parse(files[path]); return module.exports; }
      function require(name) {
        if (name === 'n8n-workflow') return workflow;
        if (name.charAt(0) !== '.' && name.charAt(0) !== '/') return anything;
        var found = find(join(path, name));
        return found === null ? anything : load(found);
      }
      var body = new Function('exports', 'require', 'module', '__filename', '__dirname', files[path]);
      body.call(module.exports, module.exports, require, module, path, path.split('/').slice(0, -1).join('/'));
      return module.exports;
    }
    return load;
  }

  function plain(value) {
    var count = 0, stack = [];
    function copy(v, depth) {
      if (v === null || typeof v === 'string' || typeof v === 'boolean') return v;
      if (typeof v === 'number') return isFinite(v) ? v : null;
      if (typeof v !== 'object' || depth > 40 || stack.indexOf(v) >= 0) return undefined;
      if (++count > LIMIT) throw new Error('description has too many parts');
      stack.push(v);
      var out;
      if (Array.isArray(v)) {
        out = v.map(function (x) { var c = copy(x, depth + 1); return c === undefined ? null : c; });
      } else {
        out = {};
        keysOf(v).forEach(function (k) {
          var c = copy(v[k], depth + 1);
          if (c !== undefined && k !== '__proto__') out[k] = c;
        });
      }
      stack.pop();
      return out;
    }
    return copy(value, 0);
  }

  global.console = { log: function () {}, warn: function () {}, error: function () {}, info: function () {}, debug: function () {} };
  global.process = { env: {}, argv: [], version: 'v20.0.0', versions: { node: '20.0.0' }, platform: 'linux', cwd: function () { return '/'; }, nextTick: function () {}, on: function () {} };
  global.Buffer = anything;
  global.URL = anything;
  global.URLSearchParams = anything;
  global.TextEncoder = anything;
  global.TextDecoder = anything;
  global.AbortController = anything;
  global.fetch = anything;
  global.setTimeout = global.setInterval = global.setImmediate = function () { return 0; };
  global.clearTimeout = global.clearInterval = function () {};
  global.global = global;

  global.__run = function (payload, path) {
    try {
      var load = loader(parse(payload));
      var exported = load(path);
      var name = path.split('/').pop().split('.')[0];
      var built = exported[name];
      if (typeof built !== 'function') {
        var classes = Object.keys(exported).filter(function (k) { return typeof exported[k] === 'function'; });
        built = classes.length === 1 ? exported[classes[0]] : undefined;
      }
      if (typeof built !== 'function') return stringify({ error: 'no class ' + name + ' in ' + path });
      var object = new built();
      if (object.nodeVersions) {
        var versions = Object.keys(object.nodeVersions).map(Number).sort(function (a, b) { return a - b; });
        var top = object.nodeVersions[versions[versions.length - 1]];
        var merged = Object.assign({}, object.description, top.description);
        return stringify({ value: plain({ description: merged }) });
      }
      return stringify({ value: plain(object) });
    } catch (e) {
      return stringify({ error: String(e && e.message || e) + " " + String(e && e.stack || "").split("\n")[0].trim() });
    }
  };
})(globalThis);
