import { posix } from 'node:path';
import { strFromU8, unzipSync } from 'fflate';
import { unreadable } from './document.js';
import { find, findAll, parseXml, textOf, type XmlElement } from './xml.js';

/** Bytes of all parts of one file that are text, unpacked. */
const MAX_UNPACKED_BYTES = 128 * 2 ** 20;
const TEXT_PART = /\.(?:xml|rels|opf|ncx|x?html?)$/i;
/** Beginning of files of older Office, and of encrypted ones. */
const COMPOUND_FILE = [0xd0, 0xcf, 0x11, 0xe0];

/** The parts of an office file that are text. */
export class Archive {
  readonly #parts: Readonly<Record<string, Uint8Array>>;

  private constructor(parts: Readonly<Record<string, Uint8Array>>) {
    this.#parts = parts;
  }

  /** Unpacks a file. Error: WARMPATH_UNREADABLE_FILE where it is encrypted, broken, or grows too large. */
  static open(bytes: Uint8Array): Archive {
    if (COMPOUND_FILE.every((byte, at) => bytes[at] === byte)) {
      throw unreadable('it is encrypted, or in a format of before Office 2007');
    }
    let unpackedBytes = 0;
    const filter = ({ name, originalSize }: { readonly name: string; readonly originalSize: number }) => {
      if (!TEXT_PART.test(name)) return false;
      unpackedBytes += originalSize;
      return unpackedBytes <= MAX_UNPACKED_BYTES;
    };
    let parts: Readonly<Record<string, Uint8Array>>;
    try {
      parts = unzipSync(bytes, { filter });
    } catch (cause) {
      throw unreadable('the file is broken', cause);
    }
    if (unpackedBytes <= MAX_UNPACKED_BYTES) return new Archive(parts);
    throw unreadable(`its text has more than ${MAX_UNPACKED_BYTES / 2 ** 20} MB when it is unpacked`);
  }

  bytes(path: string): Uint8Array | undefined {
    return Object.hasOwn(this.#parts, path) ? this.#parts[path] : undefined;
  }

  /** A part as a tree, without the elements that `take` returns true for. */
  xml(path: string, take?: (element: XmlElement) => boolean): XmlElement | undefined {
    const bytes = this.bytes(path);
    return bytes === undefined ? undefined : parseXml(strFromU8(bytes).replace(/^\ufeff/, ''), take);
  }

  /** A part without which the file is broken. */
  main(path: string): XmlElement {
    const part = this.xml(path);
    if (part === undefined) throw unreadable(`the file is broken: it has no ${path}`);
    return part;
  }

  /** What a part of Office Open XML refers to: kinds and paths by id. */
  relations(path: string): Map<string, { readonly kind: string; readonly path: string }> {
    const { dir, base } = posix.parse(path);
    return new Map(
      findAll(this.xml(`${dir}/_rels/${base}.rels`), 'Relationship').map(({ attributes }) => {
        const target = attributes['Target'] ?? '';
        const kind = posix.basename(attributes['Type'] ?? '');
        return [
          attributes['Id'] ?? '',
          { kind, path: target.startsWith('/') ? target.slice(1) : posix.join(dir, target) },
        ];
      }),
    );
  }

  /** Title and language of an Office Open XML file. */
  properties(): { title?: string; language?: string } {
    return propertiesIn(this.xml('docProps/core.xml'));
  }
}

/** Title and language as the terms of Dublin Core say them. */
export function propertiesIn(element: XmlElement | undefined): { title?: string; language?: string } {
  const title = textOf(find(element, 'title')).trim();
  const language = textOf(find(element, 'language')).trim();
  return { ...(title !== '' && { title }), ...(language !== '' && { language }) };
}
