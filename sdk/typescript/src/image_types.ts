/** What `cloche.images` takes and gives. */
import type { CallOptions } from './types.js';

export interface Image {
  /** As people type it: `python:3.12-slim`. */
  name: string;
  fullName: string;
  digest: string;
  tenant: string;
  public: boolean;
  /** "UID:GID" that its commands run as. */
  user: string;
  architecture: string;
  created: string | null;
  storedAt: string;
  size: number;
  source: Record<string, unknown>;
  config: {
    user: string | null;
    workdir: string | null;
    env: string[];
    entrypoint: string[] | null;
    cmd: string[] | null;
    labels: Record<string, string>;
  } & Record<string, unknown>;
  layers: { diffId: string; digest: string | null; size: number; files: number }[];
  history: { created: string | null; createdBy: string | null; comment: string | null; emptyLayer: boolean }[];
}

/** A login at the registry. Without one: what the daemon's configuration has. */
export interface ImageLogin {
  username?: string;
  password?: string;
}

export interface ImageCommitOptions extends CallOptions {
  /** For the image's history. */
  comment?: string;
}

export interface ImagePullOptions extends CallOptions, ImageLogin {
  onProgress?: (p: { layers: number; ready: number; bytes: number; total: number }) => void;
}

export interface ImageImportOptions extends CallOptions {
  /** What it is called; otherwise as the archive says. */
  name?: string;
  /** Which image of an archive with several. */
  ref?: string;
  format?: 'auto' | 'image' | 'rootfs';
  /** Of a root filesystem: its configuration, as in an OCI image. */
  config?: Record<string, unknown>;
}

export interface ImageOutdated {
  name: string;
  digest: string;
  registryDigest: string;
  outdated: boolean;
}

/** What images take of the disk, and of a tenant's quota. */
export interface ImagesUsage {
  tenants: {
    tenant: string;
    images: number;
    layers: number;
    bytes: number;
    buildLayers: number;
    buildBytes: number;
    pendingBytes: number;
    used: number;
    /** 0: no limit. */
    quota: number;
  }[];
  /** Every layer of every tenant once; only for administrators that ask for all tenants. */
  disk: { layers: number; bytes: number } | null;
}

export interface BuildOptions extends CallOptions {
  /** A folder of this machine, or a tar. Without one COPY and ADD have nothing to copy. */
  context?: string | { tar: string | Uint8Array | AsyncIterable<Uint8Array | string> };
  tags?: readonly string[];
  args?: Record<string, string>;
  target?: string;
  network?: unknown;
  noCache?: boolean;
  labels?: Record<string, string>;
  secrets?: Record<string, string | Uint8Array>;
  onEvent?: (e: BuildEvent) => void;
}

/** What happens during a build. */
export interface BuildEvent {
  type: 'step' | 'output' | 'pull' | 'warning';
  step?: number;
  total?: number;
  state?: 'begun' | 'done' | 'cached';
  stream?: 'stdout' | 'stderr';
  text?: string;
  image?: string;
}
