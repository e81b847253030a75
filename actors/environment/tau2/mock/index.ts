/** The mock domain: a to-do list and the user's inbox. For plumbing, not for scores. */
import { z } from 'zod';
import { transferTool } from '../common-tools.ts';
import { Document, TwoSides } from '../document.ts';
import type { Domain } from '../domain.ts';
import { dict, list, literal, optional, type RecordOf, record, type Shape, text, validate, withDefault } from '../python/shape.ts';
import { equals, lookUp, str, valueError } from '../python/values.ts';
import { Toolkit, tau2Tool } from '../toolkit.ts';

const task = record('Task', {
  task_id: text,
  title: text,
  description: optional(text),
  status: literal('pending', 'completed') as Shape<string>,
});
const user = record('User', { user_id: text, name: text, tasks: list(text) });
const notification = record(
  'Notification',
  {
    notification_id: text,
    message: text,
    status: withDefault(literal('unread', 'read') as Shape<string>, () => 'unread'),
    task_id: optional(text),
  },
  'forbid',
);
const database = record('MockDB', { tasks: dict(task), users: dict(user) }, 'forbid');
const inbox = record('MockUserDB', { notifications: withDefault(dict(notification), () => new Map()) }, 'forbid');

type MockDb = RecordOf<typeof database.fields>;
type Inbox = RecordOf<typeof inbox.fields>;
type MockWorld = TwoSides<MockDb, Inbox>;

const tasksOf = (world: MockWorld) => world.agent('MockDB', 'tasks').tasks;
const usersOf = (world: MockWorld) => world.agent('MockDB', 'users').users;
const notesOf = (world: MockWorld) => world.user('MockUserDB', 'notifications').notifications;

function found<T>(map: ReadonlyMap<string, T>, what: string, id: unknown): T {
  const it = lookUp(map, id);
  if (it === undefined) throw valueError(`${what} ${str(id)} not found`);
  return it;
}

const agent = new Toolkit<MockWorld>(
  'MockTools',
  [
    tau2Tool({
      name: 'create_task',
      kind: 'write',
      description: 'Adds a task to the list of a user.',
      parameters: z.object({
        user_id: z.string().describe('whose task it is'),
        title: z.string().describe('its title'),
        description: z.string().optional().describe('more about it'),
      }),
      run(world: MockWorld, { user_id, title, description }) {
        const owner = found(usersOf(world), 'User', user_id);
        const tasks = tasksOf(world);
        const made = validate('Task', task, {
          task_id: `task_${tasks.size + 1}`,
          title,
          description: description ?? null,
          status: 'pending',
        });
        tasks.set(made.task_id, made);
        owner.tasks.push(made.task_id);
        return task.write(made, false);
      },
    }),
    tau2Tool({
      name: 'get_users',
      kind: 'read',
      description: 'All users.',
      parameters: z.object({}),
      run: (world: MockWorld) => list(user).write([...usersOf(world).values()], false),
    }),
    tau2Tool({
      name: 'update_task_status',
      kind: 'write',
      description: 'Sets the status of a task.',
      parameters: z.object({
        task_id: z.string().describe('which task'),
        status: z.enum(['pending', 'completed']).describe('its new status'),
      }),
      run(world: MockWorld, { task_id, status }) {
        const it = found(tasksOf(world), 'Task', task_id);
        // The original checks nothing here.
        it.status = status as string;
        return task.write(it, false);
      },
    }),
    transferTool<MockWorld>(),
  ],
  {
    assert_number_of_tasks: (world, { user_id, expected_number }) =>
      equals(found(usersOf(world), 'User', user_id).tasks.length, expected_number),
    assert_task_status: (world, { task_id, expected_status }) => equals(found(tasksOf(world), 'Task', task_id).status, expected_status),
  },
);

const userTools = new Toolkit<MockWorld>(
  'MockUserTools',
  [
    tau2Tool({
      name: 'check_notifications',
      kind: 'read',
      description: 'All notifications in your inbox.',
      parameters: z.object({}),
      run: (world: MockWorld) => list(notification).write([...notesOf(world).values()], false),
    }),
    tau2Tool({
      name: 'dismiss_notification',
      kind: 'write',
      description: 'Marks a notification as read.',
      parameters: z.object({ notification_id: z.string().describe('which one') }),
      run(world: MockWorld, { notification_id }) {
        found(notesOf(world), 'Notification', notification_id).status = 'read';
        return `Notification ${str(notification_id)} dismissed`;
      },
    }),
  ],
  {
    add_notification(world, { notification_id, message, task_id }) {
      const made = validate('Notification', notification, { notification_id, message, task_id: task_id ?? null });
      notesOf(world).set(made.notification_id, made);
      return made;
    },
    assert_notification_status: (world, { notification_id, expected_status }) =>
      equals(found(notesOf(world), 'Notification', notification_id).status, expected_status),
  },
);

export function mock(db: unknown, userDb: unknown): Domain<MockWorld> {
  const books = new Document('MockDB', database, validate('MockDB', database, db));
  const notes = new Document('MockUserDB', inbox, validate('MockUserDB', inbox, userDb));
  return {
    name: 'mock',
    agent,
    user: userTools,
    world: () => new TwoSides(books, notes),
    update: (world, side, data) => world.update(side, data),
    hashes: (world) => world.hashes(),
    same: (a, b) => a.same(b),
    snapshot: (world) => world.snapshot(),
  };
}
