import { type ArrangedChat, type EngineUsage, type LocalChatRequest, LocalWarmpath } from '@warmpath/client';
import { readUsage } from '@warmpath/core/internal';

/** Keeps what it is told first of each chat that it arranged; only that counts. */
export class ListeningWarmpath extends LocalWarmpath {
  readonly told: (EngineUsage | 'failed')[] = [];

  override arrangeChat<Message extends object>(request: LocalChatRequest<Message>): ArrangedChat<Message> {
    const chat = super.arrangeChat(request);
    let isOpen = true;
    const note = (report: EngineUsage | 'failed') => {
      if (isOpen) this.told.push(report);
      isOpen = false;
    };
    return {
      ...chat,
      completed: async (usage: unknown) => {
        note(readUsage(usage));
        await chat.completed(usage);
      },
      failed: async () => {
        note('failed');
        await chat.failed();
      },
    };
  }
}
